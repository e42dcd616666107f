// RUN: %exla-opt %s --passes=wide-sums | filecheck %s
// RUN: %exla-opt %s --passes=wide-sums --no-reassociate | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=wide-sums --target=gpu | filecheck %s --check-prefix=LEFT

// The first two are sums of more than 32 rows of more than 64 KiB. The others stay: a sum of short rows, of few rows, along
// the rows, a largest element, and a sum that starts from one.

// CHECK-DAG: %[[ONES:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<40xf32>
// CHECK-DAG: %[[MORE:.*]] = stablehlo.constant dense<1.000000e+00> : tensor<4x10xf64>
// CHECK: stablehlo.dot_general %[[ONES]], %arg0, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : (tensor<40xf32>, tensor<40x17000xf32>) -> tensor<17000xf32>
// CHECK: stablehlo.dot_general %[[MORE]], %arg1, contracting_dims = [0, 1] x [0, 1], precision = [HIGHEST, HIGHEST] : (tensor<4x10xf64>, tensor<4x10x3x3000xf64>) -> tensor<3x3000xf64>
// CHECK-NOT: dot_general
// CHECK-COUNT-5: stablehlo.reduce(
// CHECK-NOT: stablehlo.reduce(

// LEFT-NOT: dot_general

func.func @main(%wide: tensor<40x17000xf32>, %wider: tensor<4x10x3x3000xf64>, %short: tensor<40x16000xf32>, %few: tensor<32x17000xf32>) -> (tensor<17000xf32>, tensor<3x3000xf64>, tensor<16000xf32>, tensor<17000xf32>, tensor<40xf32>, tensor<17000xf32>, tensor<17000xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zero64 = stablehlo.constant dense<0.0> : tensor<f64>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.reduce(%wide init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<40x17000xf32>, tensor<f32>) -> tensor<17000xf32>
  %1 = stablehlo.reduce(%wider init: %zero64) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x10x3x3000xf64>, tensor<f64>) -> tensor<3x3000xf64>
  %2 = stablehlo.reduce(%short init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<40x16000xf32>, tensor<f32>) -> tensor<16000xf32>
  %3 = stablehlo.reduce(%few init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<32x17000xf32>, tensor<f32>) -> tensor<17000xf32>
  %4 = stablehlo.reduce(%wide init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<40x17000xf32>, tensor<f32>) -> tensor<40xf32>
  %5 = stablehlo.reduce(%wide init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<40x17000xf32>, tensor<f32>) -> tensor<17000xf32>
  %6 = stablehlo.reduce(%wide init: %one) applies stablehlo.add across dimensions = [0] : (tensor<40x17000xf32>, tensor<f32>) -> tensor<17000xf32>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<17000xf32>, tensor<3x3000xf64>, tensor<16000xf32>, tensor<17000xf32>, tensor<40xf32>, tensor<17000xf32>, tensor<17000xf32>
}
