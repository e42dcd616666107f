// RUN: %exla-opt %s --passes=normalise | filecheck %s

// TensorFlow's QR decomposition returns a tuple; its tensors are returned instead. Unread elements need no reader.

// CHECK: %[[QR:.+]]:2 = stablehlo.custom_call @Qr(%{{.+}}) : (tensor<8x6x4xf32>) -> (tensor<8x6x4xf32>, tensor<8x4xf32>)
// CHECK-NEXT: %[[Q:.+]] = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%[[QR]]#0, %[[QR]]#1)
// CHECK-NEXT: %[[R:.+]]:2 = stablehlo.custom_call @Qr
// CHECK-NEXT: return %[[Q]], %[[R]]#0

func.func public @main(%x: tensor<8x6x4xf32>) -> (tensor<8x6x4xf32>, tensor<8x6x4xf32>) {
  %0 = stablehlo.custom_call @Qr(%x) {xla_shape = "(f32[8,6,4]{2,1,0}, f32[8,4]{1,0})"} : (tensor<8x6x4xf32>) -> tuple<tensor<8x6x4xf32>, tensor<8x4xf32>>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<8x6x4xf32>, tensor<8x4xf32>>) -> tensor<8x6x4xf32>
  %2 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<8x6x4xf32>, tensor<8x4xf32>>) -> tensor<8x4xf32>
  %3 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%1, %2) : (tensor<8x6x4xf32>, tensor<8x4xf32>) -> tensor<8x6x4xf32>
  %4 = stablehlo.custom_call @Qr(%3) : (tensor<8x6x4xf32>) -> tuple<tensor<8x6x4xf32>, tensor<8x4xf32>>
  %5 = stablehlo.get_tuple_element %4[0] : (tuple<tensor<8x6x4xf32>, tensor<8x4xf32>>) -> tensor<8x6x4xf32>
  return %3, %5 : tensor<8x6x4xf32>, tensor<8x6x4xf32>
}
